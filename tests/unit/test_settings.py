from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.settings import Settings, SettingsError, setting_of, settings_markdown, settings_table


def errors_of(mapping: dict[str, str], **overrides: object) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        Settings.from_env(mapping, **overrides)
    return caught.value.errors


def test_nothing_given_is_the_documented_default() -> None:
    settings = Settings.from_env({})
    assert (settings.host, settings.port) == ("127.0.0.1", 8808)
    assert settings.redis_url is None
    assert settings.redis == "redis://127.0.0.1:6379"
    assert settings.prefix == "toolcast"
    assert settings.page == 256 * 1024


def test_every_variable_is_read() -> None:
    settings = Settings.from_env(
        {
            "HOST": "::1",
            "PORT": "0",
            "REDIS_URL": "rediss://user:pw@cache.example:6380/2",
            "WEB_CONCURRENCY": "2",
            "TOOLCAST_INSECURE": "yes",
            "TOOLCAST_EMBEDDED": "off",
            "TOOLCAST_CORS_ORIGINS": "https://app.example, http://[::1]:5173",
            "TOOLCAST_HEARTBEAT": "2.5s",
            "TOOLCAST_RUN_MEMORY": "2 MiB",
            "TOOLCAST_PAGE": "131072",
            "TOOLCAST_LOG_FORMAT": "json",
        }
    )
    assert settings.host == "::1"
    assert settings.port == 0
    assert settings.redis == "rediss://user:pw@cache.example:6380/2"
    assert settings.prefix == "toolcast2"
    assert settings.workers == 2
    assert settings.insecure
    assert not settings.embedded
    assert settings.cors_origins == ("https://app.example", "http://[::1]:5173")
    assert settings.heartbeat == 2.5
    assert settings.run_memory == 2 * 1024 * 1024
    assert settings.page == 131_072
    assert settings.log_format == "json"


def test_an_override_wins_over_the_environment_even_over_a_bad_one() -> None:
    assert Settings.from_env({"PORT": "no"}, port=9000).port == 9000


def test_an_empty_variable_counts_as_not_set() -> None:
    assert Settings.from_env({"PORT": "", "REDIS_URL": " "}) == Settings()


def test_every_error_is_listed_at_once_with_both_spellings() -> None:
    errors = errors_of(
        {"PORT": "70000", "TOOLCAST_MEMORY": "lots", "WEB_CONCURRENCY": "two", "TOOLCAST_NAMESPACE": "{x}"},
        heartbeat=-1.0,
    )
    assert sorted(line.split(":")[0] for line in errors) == [
        "PORT (--port)",
        "TOOLCAST_HEARTBEAT (--heartbeat)",
        "TOOLCAST_MEMORY (--memory)",
        "TOOLCAST_NAMESPACE (--namespace)",
        "WEB_CONCURRENCY (--workers)",
    ]


@pytest.mark.parametrize("url", ["localhost:6379", "http://a", "redis://", "unix://", "redis://a:x"])
def test_a_redis_url_that_is_none_is_refused_without_repeating_it(url: str) -> None:
    (error,) = errors_of({"REDIS_URL": url})
    assert "not a Redis URL" in error
    assert "redis://host:6379" in error


def test_a_password_in_a_bad_url_is_not_shown() -> None:
    (error,) = errors_of({"REDIS_URL": "http://app:secret@db"})
    assert "secret" not in error


@pytest.mark.parametrize(
    ("origin", "says"),
    [
        ("*", "never allowed"),
        ("null", "never allowed"),
        ("https://app.example/", "how a browser writes it: https://app.example"),
        ("https://App.example", "how a browser writes it: https://app.example"),
        ("https://app.example:443", "how a browser writes it: https://app.example"),
        ("app.example", "scheme and host"),
        ("https://app.example:x", "not an origin"),
    ],
)
def test_an_origin_must_be_exact(origin: str, says: str) -> None:
    (error,) = errors_of({"TOOLCAST_CORS_ORIGINS": origin})
    assert says in error


@pytest.mark.parametrize("name", ["TOOLCAST_JWT_SECRET", "TOOLCAST_AUTH_URL"])
def test_a_key_that_would_be_ignored_is_an_error(name: str) -> None:
    """Who sets a key must not get a gateway without one."""
    (error,) = errors_of({name: "x"})
    assert name in error
    assert "authorize=" in error


def test_one_runs_memory_is_part_of_all_memory() -> None:
    (error,) = errors_of({"TOOLCAST_RUN_MEMORY": "64MiB", "TOOLCAST_MEMORY": "32MiB"})
    assert "TOOLCAST_RUN_MEMORY" in error


def test_a_size_and_a_number_not_finite_are_refused() -> None:
    assert "out of range" in errors_of({"TOOLCAST_WAIT": "nan"})[0]
    assert "too few" in errors_of({"TOOLCAST_WRITE": "0"})[0]


def test_the_environment_of_a_child_gives_the_same_settings() -> None:
    settings = Settings(
        port=0,
        redis_url="redis://h:1",
        insecure=True,
        embedded=False,
        cors_origins=("https://a.example", "https://b.example"),
        heartbeat=0.25,
        page=100_000,
    )
    assert Settings.from_env(settings.environ()) == settings


def test_names_are_spelled_once() -> None:
    table = settings_table()
    assert len({row.env for row in table}) == len({row.flag for row in table}) == len(table)
    assert all(row.help.endswith(".") and "\n" not in row.help for row in table)
    assert {row.env for row in table if not row.env.startswith("TOOLCAST_")} == {
        "HOST",
        "PORT",
        "REDIS_URL",
        "WEB_CONCURRENCY",
    }
    assert setting_of("run_memory").shown_default == "1MiB"


def test_importing_reads_nothing() -> None:
    """A broken environment is no reason for an import to fail."""
    code = "import gateway.settings, os; os.environ.clear(); print(gateway.settings.Settings().port)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PORT": "nonsense"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == "8808\n"


def test_the_documentation_holds_the_table() -> None:
    """Where it doesn't, put what `settings_markdown()` gives into docs/settings.md."""
    page = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
    assert settings_markdown() in page.read_text(encoding="utf-8")
