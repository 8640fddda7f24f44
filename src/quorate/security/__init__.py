"""Who somebody is, what they may do, and how what is said to them stays secret: the rules, without the sockets."""
