"""Certificates, keys and signatures that operations create and renew."""
