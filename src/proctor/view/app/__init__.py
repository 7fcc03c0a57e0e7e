"""The run browser: a local web server that only reads. Every view is an address, and none needs a script."""
