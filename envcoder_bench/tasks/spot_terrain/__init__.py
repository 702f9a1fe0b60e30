"""Spot tracks velocity commands on rough ground."""
