"""Makes SDK clients for the command line, and imports the SDKs only then.

The library takes clients that its users make; here the user is a command. Clients are async context
managers of the SDKs' own.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from openai import AsyncAzureOpenAI, AsyncOpenAI

#: Servers of one's own often take any key; the SDK wants one.
ANY_KEY: Final = "unused"


def openai_client(*, api_key: str | None, base_url: str | None) -> "AsyncOpenAI":
    """Make a client of OpenAI, or of a server that speaks its protocol."""
    from openai import AsyncOpenAI  # noqa: PLC0415  # loaded when first used

    return AsyncOpenAI(api_key=api_key or ANY_KEY, base_url=base_url)


def azure_client(*, endpoint: str, api_key: str, api_version: str) -> "AsyncAzureOpenAI":
    """Make a client of Azure OpenAI."""
    from openai import AsyncAzureOpenAI  # noqa: PLC0415  # loaded when first used

    return AsyncAzureOpenAI(azure_endpoint=endpoint, api_key=api_key, api_version=api_version)


def anthropic_client(*, api_key: str, base_url: str | None) -> "AsyncAnthropic":
    """Make a client of Anthropic."""
    from anthropic import AsyncAnthropic  # noqa: PLC0415  # loaded when first used

    return AsyncAnthropic(api_key=api_key, base_url=base_url)


def loopback_openai_client(base_url: str) -> "AsyncOpenAI":
    """Make a client of a simulated provider; proxies of the environment are not for it."""
    from openai import AsyncOpenAI, DefaultAsyncHttpx2Client  # noqa: PLC0415  # as above

    http = DefaultAsyncHttpx2Client(trust_env=False)
    return AsyncOpenAI(api_key=ANY_KEY, base_url=base_url, http_client=http)


def loopback_anthropic_client(base_url: str) -> "AsyncAnthropic":
    """Make a client of a simulated provider; proxies of the environment are not for it."""
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient  # noqa: PLC0415  # as above

    http = DefaultAsyncHttpxClient(trust_env=False)
    return AsyncAnthropic(api_key=ANY_KEY, base_url=base_url, http_client=http)
