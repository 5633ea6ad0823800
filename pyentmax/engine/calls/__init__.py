"""What holds for every call: dtypes, devices, lazy arrays, rows, parameters and options."""
