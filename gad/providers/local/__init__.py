"""The embedded local model: weights, a supervised llama.cpp server, and a text protocol for small models.

It is for trying gad, for tests and for offline use. Work that matters wants a bigger model.
"""
