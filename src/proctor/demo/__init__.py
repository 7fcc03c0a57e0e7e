"""The demo: synthetic driving scenes, and the tiny Qwen3-VL that sits the exam on a CPU."""
