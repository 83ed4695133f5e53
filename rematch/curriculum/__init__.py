"""Where each new episode starts and how hard it is."""
