"""Texts for people show themselves at a prompt and in a notebook."""

from opmill.shown import InNotebooks, Shown, shown


def test_parts_stand_below_one_another():
    text = shown(["a", "b"])
    assert text == "a\nb" and repr(text) == "a\nb" and type(text) is Shown


def test_a_notebook_shows_signs_as_they_are():
    assert shown(["x < y & z"])._repr_html_() == '<pre style="white-space: pre-wrap">x &lt; y &amp; z</pre>'


def test_data_with_a_text_shows_the_text():
    class Told(InNotebooks):
        def __str__(self):
            return "<told>"

    assert "&lt;told&gt;" in Told()._repr_html_()
