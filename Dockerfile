# syntax=docker/dockerfile:1
# SPDX-License-Identifier: Apache-2.0
#
# docker build --build-arg VERSION="$(git describe --tags --always)" -t overdue .
# docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=... -t registry.example.com/overdue --push .
#
# The compiler runs on the builder's own architecture and cross-compiles: no emulation.
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=devel
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X overdue/internal/version.release=$VERSION" -o /out/overdue ./cmd/overdue
# What a process may write to, wherever nothing is mounted over it: the journal, the history, certificates of Overdue's own.
RUN mkdir -p /out/data

FROM scratch
ARG VERSION=devel
LABEL org.opencontainers.image.title="Overdue" \
      org.opencontainers.image.description="Eager expiry for Azure Service Bus: the proxy beside an app, the monitor, a broker for tests" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/overdue /overdue
COPY --from=build --chown=65532:65532 /out/data /var/lib/overdue
# Nobody reads the banner: without a namespace the embedded broker runs only if OVERDUE_BROKER_ENABLED=true asks for it.
ENV HOME=/var/lib/overdue OVERDUE_UNATTENDED=true
# By number, so that runAsNonRoot can be checked without a passwd file.
USER 65532:65532
ENTRYPOINT ["/overdue"]
CMD ["run"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["/overdue", "healthcheck"]
