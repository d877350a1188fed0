"""The text of reference documentation is whole: short lines, tables and lists are text."""

from __future__ import annotations

import pytest

from crawlproj.config import Config
from crawlproj.parsing.html import read_html

SENTENCE = "A gate that is not shut in so many words is shut when the day ends; nobody has to wait for it."
WAYS = """<tr><td width="40%" align="left"><a accesskey="p" href="open.html">Prev</a></td>
<td width="20%" align="center"><a accesskey="u" href="gates.html">Up</a></td>
<td width="40%" align="right"><a accesskey="n" href="wait.html">Next</a></td></tr>"""


def docbook(title: str, content: str) -> str:
    """A page in the manner of DocBook's stylesheets."""
    return f"""<html><head><title>{title}</title></head><body id="docContent">
<div class="navheader"><table width="100%" summary="Navigation header">
<tr><th colspan="3" align="center">{title}</th></tr>{WAYS}</table><hr /></div>
{content}
<div class="navfooter"><hr /><table width="100%" summary="Navigation footer">{WAYS}
<tr><td>OPEN GATE </td><td><a href="index.html">Home</a></td><td align="right"> AWAIT GATE</td></tr>
</table></div></body></html>"""


COMMAND = docbook(
    "SHUT GATE",
    f"""<div class="refentry" id="shut-gate"><div class="titlepage"></div>
<div class="refnamediv"><h2><span class="refentrytitle">SHUT GATE</span></h2>
<p>SHUT GATE — shut a gate</p></div>
<div class="refsynopsisdiv"><h2>Synopsis</h2>
<pre class="synopsis">SHUT [ GATE ] {{ <em><code>name</code></em> | ALL }}</pre></div>
<div class="refsect1"><h2>Description</h2>
<p><code class="command">SHUT GATE</code> shuts a gate. {SENTENCE}</p>
<p>For more about gates, see <a class="xref" href="gate-open.html">OPEN GATE</a>.</p></div>
<div class="refsect1"><h2>Parameters</h2><div class="variablelist"><dl class="variablelist">
<dt><span class="term"><code class="literal">GATE</code></span></dt><dd><p>Is ignored.</p></dd>
<dt><span class="term"><code>name</code></span></dt><dd><p>The gate to shut.</p></dd>
<dt><span class="term"><code class="literal">ALL</code></span></dt><dd><p>Shut all of them.</p></dd>
</dl></div></div>
<div class="refsect1"><h2>Compatibility</h2><p>There is no <code>SHUT GATE</code> in the standard.</p></div>
<div class="refsect1"><h2>See Also</h2>
<span class="simplelist"><a class="xref" href="open.html">OPEN GATE</a>,
<a class="xref" href="wait.html">AWAIT GATE</a></span></div></div>""",
)


def function_table(title: str, *rows: tuple[str, str, str]) -> str:
    entries = "".join(
        f"""<tr><td class="func_table_entry">
<p class="func_signature"><code class="function">{name}</code> ( <code>box</code> )
→ <code class="returnvalue">number</code></p><p>{what}</p>
<p><code class="literal">{name}(box '(2,2),(0,0)')</code> →
<code class="returnvalue">{example}</code></p></td></tr>"""
        for name, what, example in rows
    )
    return f"""<div class="table"><p class="title"><strong>{title}</strong></p><div class="table-contents">
<table class="table" border="1"><thead><tr><th class="func_table_entry"><p class="func_signature">Function</p>
<p>Description</p><p>Example(s)</p></th></tr></thead><tbody>{entries}</tbody></table></div></div>"""


SEVERAL = f"of the boxes that are given, whatever their order. {SENTENCE}"
#: A table of few words, and one of sentences.
FUNCTIONS = docbook(
    "4.2. Functions of Boxes",
    f"""<div class="sect1" id="functions-box"><div class="titlepage">
<h2 class="title">4.2. Functions of Boxes</h2></div><p>{SENTENCE} Tables 4.1 and 4.2 show them.</p>"""
    + function_table(
        "Table 4.1. Functions of One Box",
        ("area", "Computes area.", "12"),
        ("width", "Computes width.", "4"),
        ("height", "Computes height.", "3"),
        ("diagonal", "Extracts diagonal.", "5"),
        ("corners", "Counts corners.", "4"),
        ("isopen", "Is the box open?", "t"),
        ("isclosed", "Is the box closed?", "f"),
        ("radius", "Computes radius of the circle inside of the box.", "2"),
    )
    + function_table(
        "Table 4.2. Functions of Several Boxes",
        ("areas", f"Computes the areas {SEVERAL}", "12"),
        ("union", f"Computes the union {SEVERAL}", "12"),
        ("sort", f"Sorts the sides {SEVERAL}", "3"),
        ("least", f"Finds the least {SEVERAL}", "2"),
        ("most", f"Finds the largest {SEVERAL}", "7"),
        ("hull", f"Finds the hull {SEVERAL}", "9"),
    )
    + "</div>",
)
MODULES = (
    "assert box chain crank door fence gate hinge key lock nail oil post rail rope screw timer wall wire"
)


def manual(title: str, content: str) -> str:
    """A page of a manual, in the manner of Node's: the modules are listed beside the text."""
    modules = "".join(
        f'<li><a href="{name}.html" class="nav-{name}">{name.title()}</a></li>' for name in MODULES.split()
    )
    return f"""<html><head><title>{title} | Manual</title></head><body class="alt apidoc">
<div id="content" class="clearfix"><div id="column2" class="interior">
<div id="intro" class="interior"><a href="/">Manual</a></div><ul>{modules}</ul></div>
<div id="column1" class="interior"><header class="header"><h1>Manual v7.0.0</h1></header>
<div role="main" id="apicontent"><h2>{title}<span><a class="mark" href="#top">#</a></span></h2>
{content}</div></div></div></body></html>"""


METHODS = manual(
    "Gate",
    f"<p>{SENTENCE} {SENTENCE}</p>" * 8
    + "".join(
        f"""<h4><code>gate.{name}</code><span><a class="mark" href="#{name}">#</a></span></h4>
<div class="api_metadata"><span>Added in: v7.0.0</span></div>
<ul><li><code>{argument}</code> <a href="types.html" class="type">&lt;string&gt;</a> {what}</li>
<li>Returns: <a href="types.html" class="type">&lt;Gate&gt;</a></li></ul>"""
        for name, argument, what in (
            ("open(name)", "name", "The name."),
            ("shut(name)", "name", "The name."),
            ("bolt(side)", "side", "The side."),
            ("oil(kind)", "kind", "The kind of oil."),
            ("count()", "all", "Whether to count those that are open."),
        )
    ),
)


@pytest.mark.parametrize(
    ("markup", "wanted"),
    [
        pytest.param(
            COMMAND,
            "SHUT GATE — shut a gate|SHUT [ GATE ]|see OPEN GATE.|Is ignored.|The gate to shut.|ALL"
            "|Shut all of them.|no SHUT GATE in|See Also",
            id="command",
        ),
        pytest.param(
            FUNCTIONS,
            "4.2. Functions|Table 4.1. F|Sorts the sides|Table 4.2. F|area ( box ) → number|Computes area."
            "|width(box '(2,2),(0,0)') → 4|Is the box open?|Computes radius of",
            id="table of functions",
        ),
        pytest.param(
            METHODS,
            "gate.open(name)|name <string> The name|Returns: <Gate>|bolt(side)|kind <string> The kind of",
            id="list of methods",
        ),
    ],
)
def test_the_text_of_a_reference_page_is_whole(markup: str, wanted: str) -> None:
    text = read_html(markup.encode(), Config(text="main")).text

    assert [words for words in wanted.split("|") if words not in text] == []
