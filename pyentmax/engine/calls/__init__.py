"""Arguments of all calls: dtypes, devices, lazy arrays, rows, parameters and options."""
