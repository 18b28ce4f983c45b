"""What the table of Claude models says."""

import pytest

from chatrouting.adapters._anthropic.models import Target, model_family


def target(model: str) -> Target:
    return Target("anthropic", model, "https://api.anthropic.com")


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("anthropic.claude-opus-4-6-v1", "claude-opus-4-6"),
        ("claude-opus-4@20250514", "claude-opus-4"),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku"),
        ("claude-3-7-sonnet@latest", "claude-3-7-sonnet"),
        ("anthropic/claude-opus-4.5", "claude-opus-4.5"),
        ("my-deployment-20250929", "my-deployment-20250929"),
    ],
)
def test_family_is_the_name_without_vendor_and_revision(model, family):
    assert model_family(model) == family


def test_origin_names_provider_endpoint_and_family():
    """[BR-81] Revisions of one family share their proofs; endpoints and providers do not."""
    origin = target("claude-sonnet-4-5-20250929").origin

    assert origin == "anthropic https://api.anthropic.com claude-sonnet-4-5"
    assert origin == target("claude-sonnet-4-5").origin
    assert origin != Target("bedrock", "claude-sonnet-4-5", "https://api.anthropic.com").origin
    assert origin != Target("anthropic", "claude-sonnet-4-5", "https://proxy.example").origin
    assert origin != target("claude-sonnet-4-6").origin


@pytest.mark.parametrize(
    ("model", "takes_sampling", "refuses_prefill", "thinking", "takes_effort", "refuses_schema"),
    [
        ("claude-2.1", True, False, "none", False, True),
        ("claude-3-5-haiku-20241022", True, False, "none", False, True),
        ("claude-3-7-sonnet-20250219", True, False, "budget", False, True),
        ("claude-opus-4-20250514", True, False, "budget", False, True),
        ("claude-haiku-4-5", True, False, "budget", False, False),
        ("claude-opus-4-5", True, False, "budget", True, False),
        ("claude-sonnet-4-6", True, True, "adaptive", True, False),
        ("claude-opus-4-7", False, True, "adaptive", True, False),
        ("claude-sonnet-5", False, True, "adaptive", True, False),
        ("claude-mythos-preview", False, False, "adaptive", True, False),
        ("my-deployment", False, False, "adaptive", True, False),
    ],
)
def test_generation_decides(  # one for each column
    model, takes_sampling, refuses_prefill, thinking, takes_effort, refuses_schema
):
    asked = target(model)

    assert asked.takes_sampling is takes_sampling
    assert asked.refuses_prefill is refuses_prefill
    assert asked.thinking == thinking
    assert asked.takes_effort is takes_effort
    assert asked.refuses_schema is refuses_schema
