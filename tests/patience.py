"""How long a test waits for what must happen."""

#: A limit on failures only: nothing takes so long, not even on a machine that does many other things besides.
PATIENCE_S = 240.0
