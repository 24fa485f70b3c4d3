"""Tag kinds, limits and reserved prefixes."""

from typing import Final

TAG_CLUSTER: Final = "cluster"
TAG_NODEGROUP: Final = "nodegroup"
TAG_NODE: Final = "node"
TAG_INSTANCE: Final = "instance"
TAG_NETWORK: Final = "network"
VALID_TAG_TYPES: Final = ("cluster", "instance", "network", "node", "nodegroup")
MAX_TAG_LEN: Final = 128
MAX_TAGS_PER_OBJ: Final = 4096
#: Cluster tag naming an exclusion class.
EX_TAGS_PREFIX: Final = "htools:iextags:"
