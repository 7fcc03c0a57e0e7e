"""How the bytes of a bucket get from the publisher's slot into the receivers' slots."""
