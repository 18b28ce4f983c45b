"""Names of Azure regions, as data.

The names that `az account list-locations` gives for the public cloud, and the short ones that
people write into names of variables. A region that is missing here is not wrong: whoever has one
passes `regions=KNOWN_REGIONS | {"newregion"}`.
"""

from collections.abc import Iterable
from typing import Final

from chatrouting.errors import ConfigurationError

_PROPER: Final = """
    australiacentral australiacentral2 australiaeast australiasoutheast austriaeast
    belgiumcentral brazilsouth brazilsoutheast canadacentral canadaeast centralindia centralus
    chilecentral denmarkeast eastasia eastus eastus2 francecentral francesouth germanynorth
    germanywestcentral indonesiacentral israelcentral italynorth japaneast japanwest
    jioindiacentral jioindiawest koreacentral koreasouth malaysiawest mexicocentral
    newzealandnorth northcentralus northeurope norwayeast norwaywest polandcentral qatarcentral
    southafricanorth southafricawest southcentralus southeastasia southindia spaincentral
    swedencentral swedensouth switzerlandnorth switzerlandwest uaecentral uaenorth uksouth ukwest
    westcentralus westeurope westindia westus westus2 westus3
"""
_SHORT: Final = "australia brazil canada japan korea sweden uk"

#: Every name that counts as a region: the regions of Azure's public cloud, and seven short ones.
KNOWN_REGIONS: Final = frozenset((_PROPER + _SHORT).split())


def read_regions(regions: Iterable[str]) -> frozenset[str]:
    """Return names of regions as they are compared: lower case, in one piece.

    Raises:
        ConfigurationError: If it is one text, or holds what is no name.
    """
    if isinstance(regions, str):
        raise ConfigurationError(f"regions is the text {regions!r}; expected a set of names.")
    names = tuple(regions)
    for name in names:
        if not isinstance(name, str) or not name.isalnum():
            raise ConfigurationError(
                f"region {name!r} is no name; expected letters and digits, such as 'eastus2'."
            )
    return frozenset(name.lower() for name in names)
