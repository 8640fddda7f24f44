"""What a node loads that does not use it: nothing."""

import subprocess
import sys


def test_a_node_without_access_tokens_does_not_load_what_checks_them() -> None:
    loaded = (
        "import sys, quorate.security.sasl.mechanisms, quorate.security.sasl.settings, quorate.security.access, "
        "quorate.metadata.core.security_configs, quorate.metadata.core.security_state, quorate.security.tls; "
        "print('cryptography' in sys.modules)"
    )

    assert (
        subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout == "False\n"
    )
