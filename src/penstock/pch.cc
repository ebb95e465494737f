// Compiled once, so that every torch-including file can reuse its precompiled header.
