"""Who is asking: the identity every authenticator ends in and every authorizer starts from."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

AUTHENTICATED_GROUP = "system:authenticated"
UNAUTHENTICATED_GROUP = "system:unauthenticated"
PRIVILEGED_GROUP = "system:masters"
CREDENTIAL_ID_KEY = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True)
class User:
    """A caller by name, with what the authenticator said about it.

    Equal users are equal in every field; the hash leaves `extra` out, which is a mapping.

    Source: k8s.io/apiserver/pkg/authentication/user, DefaultInfo (1.37).
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)


ANONYMOUS = User(name="system:anonymous", groups=(UNAUTHENTICATED_GROUP,))


def with_authenticated_group(user: User) -> User:
    """Return the user as a member of `system:authenticated`, unless it is anonymous or already says which it is.

    Source: k8s.io/apiserver/pkg/authentication/group, AuthenticatedGroupAdder (1.37).
    """
    if user.name == ANONYMOUS.name or not {AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP}.isdisjoint(user.groups):
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED_GROUP))
