"""Opens what Nsight Systems and the PyTorch profiler write, whatever its age, and names what is missing."""
