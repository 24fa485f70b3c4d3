"""HTTPS: a cheroot server with pyOpenSSL and a pycurl client; no policy."""
