"""The Dockerfile, read and not built (no engine is at hand): all that it names exists, and images are as they must."""

import re
import subprocess

import pytest

from tests.support.deployfiles import ROOT, Dockerfile, compose, dockerfile, project

TARGETS = ("cpu", "gpu", "tools")


def extras_of(environment: str) -> set[str]:
    runs = " ".join(instruction.rest for instruction in dockerfile().stages[environment].all("RUN"))
    return {extra for found in re.findall(r"batchfleet\[([\w,]+)\]", runs) for extra in found.split(",")}


def test_every_target_that_compose_builds_is_a_stage() -> None:
    built = {service["build"]["target"] for service in compose()["services"].values() if "build" in service}

    assert built == set(TARGETS)
    assert built <= set(dockerfile().stages)


def test_a_plain_build_makes_the_cpu_image() -> None:
    assert list(dockerfile().stages)[-1] == "cpu"


def test_every_base_is_a_stage_or_pinned_by_a_tag_and_names_no_host() -> None:
    for stage in dockerfile().stages.values():
        if stage.base not in dockerfile().stages:
            name, _, tag = stage.base.partition(":")
            assert tag not in {"", "latest"}, stage.base
            assert "." not in name.split("/")[0], stage.base


def test_the_python_of_the_images_is_one_that_the_project_supports() -> None:
    version = re.match(r"(\d+\.\d+)-slim-", dockerfile().args["PYTHON"])

    assert version is not None
    assert f"Programming Language :: Python :: {version[1]}" in project()["project"]["classifiers"]


def test_what_is_copied_exists_and_is_sent_to_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    for stage in dockerfile().stages.values():
        for instruction in stage.all("COPY"):
            *sources, _target = instruction.rest.split()
            if "from" in instruction.flags:
                assert instruction.flags["from"] in dockerfile().stages
                assert sources == ["/opt/batchfleet"]
                continue
            for source in sources:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in ignored, source


def test_the_wheel_is_made_of_all_its_packages() -> None:
    copied = {word for instruction in dockerfile().stages["builder"].all("COPY") for word in instruction.rest.split()}

    assert set(project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= copied
    assert {project()["project"]["readme"], *project()["project"]["license-files"], "pyproject.toml"} <= copied


@pytest.mark.parametrize("target", TARGETS)
def test_extras_exist_and_each_image_has_a_runtime(target: str) -> None:
    extras = extras_of(f"{target}-environment")

    assert extras <= set(project()["project"]["optional-dependencies"])
    assert extras & {"cpu", "gpu", "demo"}
    assert not {"cpu", "gpu"} <= extras, "they share a package directory"
    assert "dev" not in extras


@pytest.mark.parametrize("target", TARGETS)
def test_images_run_as_a_fixed_user_that_is_not_root_and_hold_no_compiler(target: str) -> None:
    users = dockerfile().effective(target, "USER")
    runs = " ".join(instruction.rest for instruction in dockerfile().effective(target, "RUN"))

    assert users[-1].rest == "10001:10001"
    assert "--uid 10001" in runs
    assert "apt-get" not in runs
    assert "pip" not in runs


@pytest.mark.parametrize("target", TARGETS)
def test_signals_reach_the_process(target: str) -> None:
    entry = dockerfile().effective(target, "ENTRYPOINT")[-1].exec_form()
    command = dockerfile().effective(target, "CMD")[-1].exec_form()

    assert entry == ["batchfleet"]
    assert entry[0] in project()["project"]["scripts"]
    assert command == ["--help"]
    assert dockerfile().effective(target, "STOPSIGNAL")[-1].rest == "SIGTERM"


def test_the_label_says_the_projects_version() -> None:
    stage = dockerfile().stages["runtime"]

    assert stage.all("ARG")[0].rest == f"VERSION={project()['project']['version']}"
    labels = stage.all("LABEL")[0].rest
    for name in ("title", "description", "version", "licenses"):
        assert f"org.opencontainers.image.{name}=" in labels


def test_the_shell_of_the_builders_finds_exactly_one_wheel() -> None:
    """The pattern of the install command, run by a shell on the name that the build backend gives."""
    name = f"batchfleet-{project()['project']['version']}-py3-none-any.whl"
    for target in TARGETS:
        (run,) = dockerfile().stages[f"{target}-environment"].all("RUN")
        pattern = re.search(r"file://\$\(echo (\S+)\)", run.rest)
        assert pattern is not None
        folder, _, glob = pattern[1].rpartition("/")
        assert folder == "/wheels"
        shell = f'cd "$(mktemp -d)" && touch {name} && echo {glob}'
        assert subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True).stdout.strip() == name


def test_the_reader_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="cannot read"):
        Dockerfile("FROM a:1\nONBUILD RUN x\n")
    with pytest.raises(ValueError, match="cannot read"):
        Dockerfile("FROM a:1\nRUN <<EOF\nx\nEOF\n")
    with pytest.raises(ValueError, match="before FROM"):
        Dockerfile("RUN x\n")
