"""The stock Python clients behind one small interface, so that one test speaks through each of them."""
