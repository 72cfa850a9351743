"""Formulas of the pages as MathML, which browsers draw by themselves: no script, no font, no other server.

`$...$` in a line of text, `$$...$$` in a paragraph of its own. Loaded by mkdocs.yml.
"""

from latex2mathml.converter import convert
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor


class Formula(InlineProcessor):
    def __init__(self, pattern, md, display):
        super().__init__(pattern, md)
        self.display = display

    def handleMatch(self, match, data):
        html = convert(match.group(1).strip(), display=self.display)
        return self.md.htmlStash.store(html), match.start(0), match.end(0)


class Formulas(Extension):
    def extendMarkdown(self, md):
        # Before escapes and emphasis (180 and below), after code in backquotes (190).
        md.inlinePatterns.register(Formula(r"(?s)\$\$(.+?)\$\$", md, "block"), "formula-block", 186)
        inline = r"(?<![\w$\\])\$(?!\s)([^$\n]+?)(?<!\s)\$(?![\w$])"
        md.inlinePatterns.register(Formula(inline, md, "inline"), "formula", 185)


def makeExtension(**settings):
    return Formulas(**settings)
