"""Builds the HTML reader, and the egg that scrapyd takes: ``python setup.py bdist_egg``. The rest: pyproject.toml."""

from glob import glob

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "crawlproj.parsing._reader",
            sorted(glob("crawlproj/parsing/reader/*.c")),
            depends=sorted(glob("crawlproj/parsing/reader/*.h")),
            # Sums in the order of the code: every machine judges a page alike.
            extra_compile_args=["-O3", "-std=c11", "-Wall", "-Wextra", "-ffp-contract=off"],
            libraries=["m"],
            py_limited_api=True,
            # Without a compiler a slower library reads pages; crawlproj/parsing/html.py says so.
            optional=True,
        )
    ],
    # One file for every Python from 3.11 on.
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
