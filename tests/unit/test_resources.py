"""Resource names: which ones are devices."""

import pytest

from apiserver.gpu.resources import is_counted, is_dns_subdomain, is_extended_resource_name, is_qualified_name


@pytest.mark.parametrize(
    ("name", "extended", "counted"),
    [
        pytest.param("nvidia.com/gpu", True, True, id="a device plugin's"),
        pytest.param("nvidia.com/NVIDIA_L40S-24C", True, True, id="a vGPU profile"),
        pytest.param("cpu", False, False, id="native without a domain"),
        pytest.param("kubernetes.io/batch", False, True, id="Kubernetes' own domain"),
        pytest.param("mykubernetes.io/x", False, True, id="a look-alike counts as Kubernetes' own"),
        pytest.param("requests.nvidia.com/gpu", False, False, id="a quota key"),
        pytest.param("nvidia.com/" + "x" * 64, False, False, id="too long a name"),
        pytest.param("x" * 250 + ".com/gpu", False, False, id="too long once prefixed"),
        pytest.param("Nvidia.com/gpu", False, False, id="a domain in capitals"),
        pytest.param("nvidia.com/", False, False, id="no name"),
        pytest.param("nvidia.com/gpu\n", False, False, id="a newline at the end"),
    ],
)
def test_names(name: str, extended: bool, counted: bool) -> None:
    """A name is extended, counted, both or neither, as the scheduler sees it."""
    assert (is_extended_resource_name(name), is_counted(name)) == (extended, counted)


def test_qualified_names() -> None:
    """A qualified name may do without a domain, but not with an empty one."""
    assert is_qualified_name("gpu")
    assert not is_qualified_name("/gpu")
    assert not is_qualified_name("a/b/c")


def test_dns_subdomains() -> None:
    """A Secret's name is a DNS subdomain of at most 253 characters."""
    assert is_dns_subdomain("license.v1")
    assert not is_dns_subdomain("License")
    assert not is_dns_subdomain("a" * 254)
