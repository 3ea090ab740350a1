"""Topologies of stages."""
