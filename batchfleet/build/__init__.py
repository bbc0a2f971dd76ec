"""Makes models: export, precision, verify, profile, publish.

`encoder_graph` writes an encoder's ONNX graph straight from its weights (no torch), `verify` compares every
variant with the float reference and refuses those under their floor, `profile` measures passes, `pipeline`
does all of it and publishes, `demo_model` does it for the model of `batchfleet demo`.
"""
