"""What the library asks of the operating system: files, memory, threads of BLAS."""
