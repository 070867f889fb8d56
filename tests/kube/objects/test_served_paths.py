"""Paths of one object in the versions of its API that API servers of different minors serve."""

from webhook.kube.objects.keys import served_paths


def test_devices_are_tried_in_the_newest_version_first():
    assert served_paths("/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims/x") == (
        "/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims/x",
        "/apis/resource.k8s.io/v1beta2/namespaces/team-a/resourceclaims/x",
        "/apis/resource.k8s.io/v1beta1/namespaces/team-a/resourceclaims/x",
    )


def test_other_objects_have_one_path():
    assert served_paths("/api/v1/pods") == ("/api/v1/pods",)
    assert served_paths("/apis/resource.k8s.io.example.com/v1/things") == (
        "/apis/resource.k8s.io.example.com/v1/things",
    )
