"""Builds the HTML reader, and the egg that scrapyd takes (``python setup.py bdist_egg``)."""

from pathlib import Path

from setuptools import Extension, setup

READER = Path("crawlproj/parsing/reader")

setup(
    ext_modules=[
        Extension(
            "crawlproj.parsing._reader",
            sorted(map(str, READER.glob("*.c"))),
            depends=sorted(map(str, READER.glob("*.h"))),
            # Sums in the order of the code: every machine judges a page alike.
            extra_compile_args=[
                "-O3",
                "-fvisibility=hidden",
                "-std=c11",
                "-Wall",
                "-Wextra",
                "-ffp-contract=off",
            ],
            libraries=["m"],
            py_limited_api=True,
            # Without a compiler a slower library reads pages; crawlproj/parsing/html.py says so.
            optional=True,
        )
    ],
    # One file for every Python from 3.11 on.
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
