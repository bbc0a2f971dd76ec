"""Stage 3, what will answer: model configuration, manifest and repository.

`config` says what a model is (`model.toml`), `manifest` what its files are and how they were made
(`MANIFEST.json`), `accuracy` how exact a precision must be, `repository` where versions live.
"""
