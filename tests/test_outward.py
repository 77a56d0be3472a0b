"""What leaves the machine names nobody, and what is shown is only shown."""

import re
import unicodedata

import constructed
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ane_sweep import outward
from ane_sweep.bridge.record import Weights, map_record_texts

USER = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.%!$+", max_size=12)
PASSWORD = st.text("abcXYZ019-_.%!$+:/?#@&='", max_size=12)
BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("tracking.uri=https://jane:s3cret@host:5000/x", "tracking.uri=https://***@host:5000/x"),
        ("https://s3cret@host", "https://***@host"),
        ("postgresql://jane:s3/cr@et@host/db", "postgresql://***@host/db"),
        ("https://host/x?a=1&api_key=s3cret&b=2#access_token=s3cret", "https://host/x?a=1&api_key=***&b=2#access_token=***"),
        ("weights=https://b.example/o?X-Amz-Signature=s3cret", "weights=https://b.example/o?X-Amz-Signature=***"),
        ("git+https://github.com/x/y@rev", "git+https://github.com/x/y@rev"),
        ("https://huggingface.co/a/b?download=true", "https://huggingface.co/a/b?download=true"),
        ("http://127.0.0.1:5000/#/experiments/1/runs?searchFilter=x", "http://127.0.0.1:5000/#/experiments/1/runs?searchFilter=x"),
        ("mail jane@example.org", "mail jane@example.org"),
        ("https:/jane:s3cret@host/x: no such file", "https:/***@host/x: no such file"),  # as a path writes it
        ("c:/models/x@2 and lib:/a/b@rev", "c:/models/x@2 and lib:/a/b@rev"),
    ],
)  # fmt: skip
def test_addresses_lose_users_passwords_and_tokens(text, left):
    assert outward.mask_credentials(text) == left == outward.make_public(text)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/home/me/models/x", "~/models/x"),
        ("out=/home/me", "out=~"),
        ("sqlite:////home/me/m.db", "sqlite:///~/m.db"),
        ("/home/meg/x", "/home/***/x"),
        ("sqlite:////home/jane/mlflow.db", "sqlite:////home/***/mlflow.db"),
        ("/Users/John Doe/models/My Nets/x", "/Users/***/models/My Nets/x"),
        ("weights=/Users/John Doe", "weights=/Users/***"),
        ("'/Users/Conan O'Brien/x'", "'/Users/***/x'"),
        ("file:///Users/John%20Doe/x", "file:///Users/***/x"),
        (r"C:\Users\John Doe\x", r"C:\Users\***\x"),
        ("c:/users/jane/x", "c:/users/***/x"),
        (r"\\server\Users\jane\x", r"\\server\Users\***\x"),
        ("/mnt/backup/home/jane/x", "/mnt/backup/home/***/x"),
        ("~jane/x", "~***/x"),
        ("cannot read '/home/jane' and '/usr/lib/x'", "cannot read '/home/***' and '/usr/lib/x'"),
        ("/home/jane is no folder in /tmp/x", "/home/*** is no folder in /tmp/x"),
        ("reads / writes, 1/2, a/b/c, ~/x", "reads / writes, 1/2, a/b/c, ~/x"),
    ],
)
def test_homes_lose_their_names(monkeypatch, text, left):
    monkeypatch.setenv("HOME", "/home/me")
    outward._make_short_public.cache_clear()
    assert outward.mask_private(text) == left


@given(user=USER, password=PASSWORD, host=st.sampled_from(["host", "host:5432", "[::1]:80"]))
def test_no_password_is_left_of_any_address(user, password, host):
    left = outward.mask_credentials(f"say postgresql://{user}:{password}@{host}/db now")
    assert left == f"say postgresql://***@{host}/db now"


@pytest.mark.parametrize(
    ("address", "said", "left"),
    [
        ("postgresql://jane:s3cret/q@host/db", "no port: 's3cret'", "no port: '***'"),
        ("https://jane:p%40ss@host", "netloc 'jane:p@ss@host'", "netloc 'jane:***@host'"),
        ("https://s3cret@host", "refused s3cret at https://s3cret@host", "refused *** at https://***@host"),
        ("https://host/?token=s3cret", "403 for s3cret", "403 for ***"),
        ("https://host/x", "403 for host", "403 for host"),
    ],
)
def test_what_is_said_about_an_address_holds_none_of_its_secrets(address, said, left):
    assert outward.without_secrets(said, address) == left


def test_a_record_is_written_without_passwords():
    (one,) = constructed.records(1)
    one.reason, one.cell["weights"] = "https://jane:s3cret@host is away", "https://host/x?token=s3cret"
    assert "s3cret" not in one.to_json() and "https://***@host is away" in one.to_json()


@given(st.text())
def test_what_is_visible_obeys_nobody(text):
    left = outward.escape_controls(text)
    left.encode("utf-8")
    for letter in left:
        assert letter == "\n" or unicodedata.category(letter) not in ("Cc", "Zl", "Zp", "Cs")
        assert unicodedata.bidirectional(letter) not in BIDI
    assert outward.escape_controls(left) == left


def test_escapes_are_shown_for_what_they_are():
    assert (
        outward.escape_controls("a\x1b]0;evil\x07\r\x9b2Jb\u202ec\nd\té")
        == "a\\x1b]0;evil\\x07\\r\\x9b2Jb\\u202ec\nd\\té"
    )


HOSTILE = st.text("\\[]()!<>|&`:ax\n\x1b", max_size=20)


@given(HOSTILE)
def test_markdown_holds_no_link_tag_or_column(text):
    left = outward.markdown(text)
    assert "\n" not in left and "<" not in left
    bare = re.sub(r"\\[!-/:-@\[-`{-~]", "x", left)  # what CommonMark takes for punctuation that means nothing
    assert not re.search(r"\][(\[:]", bare) and "|" not in bare and not bare.endswith("\\")


def test_a_record_is_told_whole_and_stays_a_record(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    (one,) = constructed.records(1)
    one.reason, one.weights = "no \x1b[2J", Weights(source="/home/me/nets")
    one.realised["notes"] = [{"/home/jane/x": "https://a:b@c"}]
    (left,) = map_record_texts([one])
    assert left.reason == "no \\x1b[2J" and left.weights.source == "~/nets"
    assert left.realised["notes"] == [{"/home/***/x": "https://***@c"}]
    assert (left.metrics, left.cell_key) == (one.metrics, one.cell_key)


@pytest.mark.timeout(60)
def test_hostile_texts_cost_no_time():
    """Each of these would take minutes under a pattern that tries its parts in every order."""
    for part in ("?key", "://a:", "/home/", "/home/a ", "~a", "\\Users\\", "@", "](", "\\", "=&"):
        outward.markdown("x://" + part * 20_000)
