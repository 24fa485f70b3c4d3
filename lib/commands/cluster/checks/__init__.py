"""Commands of ``gnt-cluster`` that verify and repair records."""
