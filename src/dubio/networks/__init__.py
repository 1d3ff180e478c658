"""Architectures as ordered stages with named noise sites."""
