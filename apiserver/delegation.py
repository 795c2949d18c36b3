"""Delegated trust: who may ask and what they may do is the cluster's to say, not ours.

Which certificates identify callers stands in a ConfigMap that is watched; tokens and permissions are asked of
kube-apiserver as reviews.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from apiserver.cluster.client import ClusterClient
from apiserver.cluster.collection import Collection
from apiserver.cluster.reflector import Reflector, Transport
from apiserver.serving.authentication import AuthenticationConfig, Authenticator
from apiserver.serving.certificates import ServingContext
from apiserver.serving.users import User

AUTHZ_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
AUTHN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"

_NAME: Final = "extension-apiserver-authentication"
_log = logging.getLogger(__name__)


class ConfigMap(msgspec.Struct):
    """A ConfigMap, as far as it is read."""

    data: dict[str, str] | None = None


CONFIG: Final[Collection[ConfigMap]] = Collection(
    "authentication configuration",
    "/api/v1/namespaces/kube-system/configmaps",
    ConfigMap,
    # The Role that lets us read it covers this name only, so the selector is part of the permission.
    field_selector=f"metadata.name={_NAME}",
)


class Trust:
    """Keeps the authenticator and the TLS context told of whom to trust. What was good once stays until it is replaced.

    Args:
        authenticator: identifies callers.
        context: asks connections for certificates.
    """

    def __init__(self, authenticator: Authenticator, context: ServingContext) -> None:
        self._authenticator = authenticator
        self._context = context
        self._reflector: Reflector[ConfigMap] | None = None
        self._problem: str | None = None

    def reflectors(self) -> tuple[Reflector[ConfigMap], ...]:
        """What follows the ConfigMap, as far as it has begun."""
        return () if self._reflector is None else (self._reflector,)

    async def follow(self, transport: Transport) -> None:
        """Follow the ConfigMap until cancelled."""
        self._reflector = Reflector(transport, CONFIG, self)
        await self._reflector.run()

    def problem(self) -> str | None:
        """What is wrong with the configuration in force, or None."""
        if self._problem or self._authenticator.configured:
            return self._problem
        error = self._reflector.last_error if self._reflector else "not connected to the cluster yet"
        if self._reflector and self._reflector.last_status == 403:  # noqa: PLR2004 # Forbidden
            error = f"{error}; bind the Role extension-apiserver-authentication-reader in kube-system to this server"
        return f"kube-system/{_NAME} was not read: {error or 'not listed yet'}"

    def replace(self, objects: list[ConfigMap]) -> None:
        """Take the ConfigMap of a list; without one, nobody is trusted unless somebody was."""
        if objects:
            self._take(objects[0])
        elif not self._authenticator.configured:
            self._trust(AuthenticationConfig())

    def apply(self, event_type: str, obj: ConfigMap) -> None:
        """Take the ConfigMap as it now is; its deletion changes nothing."""
        if event_type != "DELETED":
            self._take(obj)

    def reject(self, name: str, reason: str) -> None:
        """Note that the ConfigMap cannot be read."""
        self._problem = f"{name}: {reason}"

    def _take(self, obj: ConfigMap) -> None:
        try:
            self._trust(AuthenticationConfig.from_configmap(obj.data or {}))
        except ValueError as error:
            self._problem = f"kube-system/{_NAME}: {error}; what was trusted before still is"
            _log.error("%s", self._problem)

    def _trust(self, config: AuthenticationConfig) -> None:
        self._context.trust(config.verifiers)
        self._authenticator.update(config)
        self._problem = None


class Reviews:
    """Asks kube-apiserver about tokens and permissions.

    Attributes:
        client: the connection; until it is set every review fails, which refuses the request.
    """

    def __init__(self) -> None:
        self.client: ClusterClient | None = None

    async def access(self, review: dict[str, object]) -> Mapping[str, object]:
        """Have a SubjectAccessReview answered."""
        return await self._post(AUTHZ_REVIEWS, review)

    async def token(self, token: str) -> User | None:
        """The user of a bearer token, or None when it is not valid.

        Raises:
            ValueError: the review itself failed.
        """
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        answer = await self._post(AUTHN_REVIEWS, review)
        status = msgspec.convert(answer.get("status") or {}, _TokenReviewStatus)
        if status.error:
            raise ValueError(status.error)
        if not status.authenticated:
            return None
        user = status.user
        extra = {key: tuple(values) for key, values in (user.extra or {}).items()}
        return User(user.username, user.uid, tuple(user.groups or ()), extra)

    async def _post(self, path: str, review: Mapping[str, Any]) -> dict[str, Any]:
        if self.client is None:
            raise ConnectionError("not connected to the cluster yet")
        return await self.client.post(path, review)


class _UserInfo(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenReviewStatus(msgspec.Struct):
    authenticated: bool = False
    user: _UserInfo = msgspec.field(default_factory=_UserInfo)
    error: str = ""
