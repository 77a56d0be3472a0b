"""The facts of this host: hardware, system, tools, processes, temperature; and a stand-in for a Mac."""
