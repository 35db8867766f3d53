"""Other projects: read what they wrote, run what they have, run ours in theirs."""
