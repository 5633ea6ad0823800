"""The mathematics that automatic differentiation follows, written once for PyTorch and for JAX.

A function takes the namespace ``xp`` first: a module with the array functions of a framework under
NumPy's names, and what frameworks do differently (`pyentmax.torch.namespace` lists it all). Arrays
are rows (…, d) of float32 or float64, parameters columns (…, 1), and nothing looks at a value, so
that all of it compiles, and can be differentiated any number of times.
"""
