"""Access to the operating system: files, memory, threads of BLAS."""
