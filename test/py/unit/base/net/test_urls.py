"""URLs in messages: without secrets."""

import pytest

from ganeti.base.net import urls


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://a.example/b/c.img", "https://a.example/b/c.img"),
        ("https://u:p@a.example:8443/c", "https://a.example:8443/c"),
        ("https://u:p@q@a.example/c", "https://a.example/c"),
        ("https://a.example/c@d", "https://a.example/c@d"),
        ("https://a.example?token=u:p@b", "https://a.example?..."),
        ("https://u:p?q@a.example/c", "https://u..."),
        ("https://u:p#q@a.example/c", "https://u..."),
        ("https://u:1/q@a.example/c", "https://u..."),
        ("https://u:p/q?r@a.example/c", "https://u..."),
        ("https://a/u:p@a.example/c", "https://a/u..."),
        ("https://u:p@a.example:80/c?t=e@f", "https://a.example..."),
        ("https://a.example/c#token", "https://a.example/c#..."),
        ("https:u:p@a.example/c?t", "a.example/c?..."),
        ("u:p@a.example/c?t", "a.example/c?..."),
        ("https://", "https://"),
        ("/srv/images", "/srv/images"),
    ],
)
def test_messages_show_a_url_without_secrets(url, text):
    assert urls.shown(url) == text
