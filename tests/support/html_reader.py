"""Reads an HTML page as a browser would: the tags it uses, the links it has."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "img", "br"}
TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "section", "h1", "h2", "h3", "p",
    "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre", "code",
    "ul", "li", "a", "figure", "img", "svg", "path", "rect", "text", "circle", "g",
}



class Reader(HTMLParser):
    """Balanced tags, the tags and attributes used, and the words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.used: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.used.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.used.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data

