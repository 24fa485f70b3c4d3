"""Commands of ``gnt-cluster`` about automatons: rules, journal, incidents, balance."""
