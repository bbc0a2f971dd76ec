"""Stage 6, what came back: results as bytes, as JSON for clients, and as blobs where they are large."""
