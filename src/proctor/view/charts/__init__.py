"""Charts as geometry: each turns numbers into positions; the templates draw them as SVG."""
