from __future__ import annotations

from pathlib import Path

import pytest
from starlette.requests import Request

from gateway.http.access import Access, Action
from gateway.http.problems import Problem
from gateway.http.static import WebFiles, find_web
from gateway.settings import Settings
from tests.support.http_scope import Answer, answer, scope


@pytest.fixture
def web(tmp_path: Path) -> Path:
    root = tmp_path / "web"
    (root / "inspector").mkdir(parents=True)
    (root / "inspector" / "index.html").write_text("<!doctype html><title>é</title>", encoding="utf-8")
    (root / "inspector" / "inspector.js").write_text("export {}\n")
    (root / "define.js").write_text("import './fold.js'\n")
    (root / "style.css").write_text("a{}")
    (root / ".secret.js").write_text("no")
    (root / "notes.txt").write_text("no")
    (tmp_path / "outside.js").write_text("no")
    (root / "link.js").symlink_to(tmp_path / "outside.js")
    return root


async def get(
    web: Path | None,
    path: str,
    *,
    method: str = "GET",
    root_path: str = "",
    access: Access | None = None,
    **headers: str,
) -> Answer:
    files = WebFiles(web, access or Access(Settings()))
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    app = files.page if path == root_path + "/" else files.module
    return await answer(app, scope(path, method=method, headers=given, root_path=root_path))


async def test_a_module_comes_with_its_type_and_for_every_page(web: Path) -> None:
    said = await get(web, "/web/define.js")
    assert said.status == 200
    assert said.body == b"import './fold.js'\n"
    assert said.headers["content-type"] == "text/javascript; charset=utf-8"
    assert said.headers["cache-control"] == "no-cache"
    assert said.headers["access-control-allow-origin"] == "*"
    assert said.headers["cross-origin-resource-policy"] == "cross-origin"
    assert said.headers["x-content-type-options"] == "nosniff"
    assert said.headers["referrer-policy"] == "no-referrer"
    assert said.headers["content-length"] == "19"


async def test_folders_and_styles_too_mounted_or_not(web: Path) -> None:
    assert (await get(web, "/web/inspector/inspector.js")).body == b"export {}\n"
    assert (await get(web, "/web/style.css")).headers["content-type"] == "text/css; charset=utf-8"
    assert (await get(web, "/toolcast/web/style.css", root_path="/toolcast")).body == b"a{}"


async def test_a_known_etag_gets_304_and_a_changed_file_a_new_one(web: Path) -> None:
    etag = (await get(web, "/web/define.js")).headers["etag"]
    for header in (etag, f'"other", W/{etag}', "*"):
        said = await get(web, "/web/define.js", if_none_match=header)
        assert (said.status, said.body) == (304, b"")
        assert said.headers["etag"] == etag
        assert said.headers["access-control-allow-origin"] == "*"

    files = WebFiles(web, Access(Settings()))
    assert (await answer(files.module, scope("/web/define.js"))).headers["etag"] == etag
    (web / "define.js").write_text("// another text\n")
    assert (await answer(files.module, scope("/web/define.js"))).body == b"// another text\n"
    assert (await get(web, "/web/define.js", if_none_match=etag)).status == 200


async def test_the_etag_is_of_the_contents_so_every_gateway_gives_the_same(web: Path) -> None:
    (web / "copy.js").write_text("import './fold.js'\n")
    first, second = await get(web, "/web/define.js"), await get(web, "/web/copy.js")
    assert first.headers["etag"] == second.headers["etag"]


async def test_head_gets_the_headers_alone(web: Path) -> None:
    said = await get(web, "/web/define.js", method="HEAD")
    assert (said.status, said.body, said.headers["content-length"]) == (200, b"", "19")


async def test_the_page_runs_under_a_strict_policy(web: Path) -> None:
    for said in (await get(web, "/"), await get(web, "/toolcast/", root_path="/toolcast")):
        assert said.status == 200
        assert said.headers["content-type"] == "text/html; charset=utf-8"
        policy = dict(
            part.strip().split(" ", 1) for part in said.headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in said.headers["content-security-policy"]
        assert "access-control-allow-origin" not in said.headers


async def test_the_page_is_for_whom_the_application_lets_administer(web: Path) -> None:
    async def may(request: Request, action: Action, run: str | None) -> bool:
        return action == "admin" and request.headers.get("cookie") == "admin"

    access = Access(Settings(), may)
    said = await get(web, "/", access=access, x_forwarded_for="203.0.113.9", cookie="admin")
    assert said.status == 200
    with pytest.raises(Problem) as caught:
        await get(web, "/", access=access, x_forwarded_for="203.0.113.9")
    assert caught.value.status == 404
    said = await get(web, "/web/define.js", access=access, x_forwarded_for="203.0.113.9")
    assert said.status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/web/",
        "/web/absent.js",
        "/web/inspector",
        "/web/inspector/index.html",
        "/web/notes.txt",
        "/web/.secret.js",
        "/web/link.js",
        "/web/../outside.js",
        "/web/inspector/../../outside.js",
        "/web//etc/passwd.js",
        "/web/..\\outside.js",
        "/web/define.js\0",
        "/web/define.js/",
        "/web/" + "a" * 5000 + ".js",
    ],
)
async def test_what_is_not_ours_to_serve_is_404(web: Path, path: str) -> None:
    with pytest.raises(Problem) as caught:
        await get(web, path)
    assert caught.value.status == 404


async def test_nothing_installed_is_404_and_other_methods_405(web: Path) -> None:
    for path in ("/", "/web/define.js"):
        with pytest.raises(Problem) as caught:
            await get(None, path)
        assert caught.value.status == 404
        with pytest.raises(Problem) as caught:
            await get(web, path, method="POST")
        assert caught.value.status == 405


def test_a_checkout_finds_its_modules() -> None:
    assert find_web() == Path(__file__).resolve().parents[2] / "web"
