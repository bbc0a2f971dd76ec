"""The resources, one module each: a class whose methods are the handlers, and `handlers()` that lists them."""
