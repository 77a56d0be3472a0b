"""The facts of this host: hardware, system, tools, processes, temperature; and the hook for a simulated Mac."""
