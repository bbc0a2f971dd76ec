"""Callers' own objects: `s3://bucket/key`, read for `input_uri` and written for `output_uri`.

`uri` is pure; `port` says what is asked of an object store; `s3_client` makes boto3 clients (the blob store uses it as
well); `s3_objects` is the adapter.
"""
