"""Builds the egg that scrapyd takes: ``python setup.py bdist_egg``. What is in it: pyproject.toml."""

from setuptools import setup

setup()
