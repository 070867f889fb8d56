"""A training worker as the API server sends one, managedFields and all: 9.4 KB, the input of speed measurements."""

from collections.abc import Mapping

from tests.builders import CPU_PER_POD, GPU, MEMORY_PER_POD, Json, review


def realistic_pod(*, gpus: int = 2, index: int = 0, namespace="vision") -> Json:
    """A PyTorchJob worker as the API server hands it to a mutating webhook: managedFields, mounts, tolerations."""
    name = f"resnet50-imagenet-worker-{index}"
    labels = {
        "training.kubeflow.org/job-name": "resnet50-imagenet",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-index": str(index),
        "training.kubeflow.org/replica-type": "worker",
        "app.kubernetes.io/part-of": "vision-research",
        "sidecar.istio.io/inject": "false",
    }
    token = f"kube-api-access-{index:05d}"
    mounts = [
        {"name": "dataset", "mountPath": "/data", "readOnly": True},
        {"name": "checkpoints", "mountPath": "/checkpoints"},
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "config", "mountPath": "/etc/training"},
        {"name": token, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
    ]
    settings = {
        "MASTER_ADDR": "resnet50-imagenet-master-0",
        "MASTER_PORT": "23456",
        "WORLD_SIZE": "16",
        "RANK": str(index + 1),
        "PYTHONUNBUFFERED": "1",
        "NCCL_DEBUG": "INFO",
        "NCCL_SOCKET_IFNAME": "eth0",
        "NCCL_IB_DISABLE": "0",
        "OMP_NUM_THREADS": "6",
        "DATA_DIR": "/data/imagenet/train",
        "CHECKPOINT_DIR": "/checkpoints/resnet50-imagenet",
        "BATCH_SIZE": "256",
        "LEARNING_RATE": "0.1",
        "EPOCHS": "90",
        "MLFLOW_TRACKING_URI": "http://mlflow.mlops.svc:5000",
    }
    env: list[Json] = [{"name": key, "value": value} for key, value in settings.items()]
    env += [
        {"name": field, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for field, path in (("POD_NAME", "metadata.name"), ("NODE_NAME", "spec.nodeName"))
    ]
    common = {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": None,
            "labels": labels,
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9400"},
            "ownerReferences": [
                {
                    "apiVersion": "kubeflow.org/v1",
                    "kind": "PyTorchJob",
                    "name": "resnet50-imagenet",
                    "uid": "f2f1b4f6-6d1c-4b3a-9e7b-4a0a6f6e7c11",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [_managed_fields(labels, settings)],
        },
        "spec": {
            "volumes": [
                {"name": "dataset", "nfs": {"server": "nfs.vision.svc", "path": "/imagenet", "readOnly": True}},
                {"name": "checkpoints", "nfs": {"server": "nfs.vision.svc", "path": "/checkpoints"}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
                {"name": "config", "configMap": {"name": "resnet50-config", "defaultMode": 420}},
                {
                    "name": token,
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {
                                "configMap": {
                                    "name": "kube-root-ca.crt",
                                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                                }
                            },
                        ],
                        "defaultMode": 420,
                    },
                },
            ],
            "initContainers": [
                {
                    "name": "init-pytorch",
                    "image": "alpine:3.20",
                    "command": ["sh", "-c", "until nslookup $MASTER_ADDR; do echo waiting for master; sleep 2; done;"],
                    "resources": {
                        "limits": {"cpu": "100m", "memory": "20Mi"},
                        "requests": {"cpu": "50m", "memory": "10Mi"},
                    },
                    "volumeMounts": [mounts[-1]],
                    **common,
                }
            ],
            "containers": [
                {
                    "name": "pytorch",
                    "image": "registry.example.com/vision/resnet50-trainer@sha256:" + "9f" * 32,
                    "command": ["torchrun"],
                    "args": ["--nnodes=8", f"--nproc_per_node={gpus}", "--rdzv_backend=c10d", "train.py", "--amp"],
                    "ports": [{"name": "pytorchjob-port", "containerPort": 23456, "protocol": "TCP"}],
                    "env": env,
                    "resources": {
                        "limits": {"cpu": "12", "memory": "96Gi", GPU: str(gpus)},
                        "requests": {"cpu": CPU_PER_POD, "memory": MEMORY_PER_POD, GPU: str(gpus)},
                    },
                    "volumeMounts": mounts,
                    **common,
                },
                {
                    "name": "metrics-exporter",
                    "image": "registry.example.com/mlops/training-metrics:2.4.1",
                    "ports": [{"name": "metrics", "containerPort": 9400, "protocol": "TCP"}],
                    "env": [{"name": "SCRAPE_INTERVAL", "value": "15s"}],
                    "resources": {
                        "limits": {"cpu": "200m", "memory": "128Mi"},
                        "requests": {"cpu": "50m", "memory": "64Mi"},
                    },
                    "livenessProbe": {
                        "httpGet": {"path": "/healthz", "port": 9400, "scheme": "HTTP"},
                        "timeoutSeconds": 1,
                        "periodSeconds": 10,
                        "successThreshold": 1,
                        "failureThreshold": 3,
                    },
                    "volumeMounts": mounts[3:],
                    **common,
                },
            ],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "training",
            "serviceAccount": "training",
            "securityContext": {"fsGroup": 1000, "runAsUser": 1000, "runAsNonRoot": True},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{key}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for key in ("not-ready", "unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {},
    }


def realistic_review(*, gpus: int = 2, index: int = 0, namespace="vision", dry_run: bool = False) -> bytes:
    """A 9.5 KB AdmissionReview: one realistic worker's creation by its operator."""
    return review(
        realistic_pod(gpus=gpus, index=index, namespace=namespace),
        namespace=namespace,
        dry_run=dry_run,
        username="system:serviceaccount:kubeflow:training-operator",
        groups=("system:serviceaccounts", "system:serviceaccounts:kubeflow", "system:authenticated"),
    )


def _managed_fields(labels: Mapping[str, str], env: Mapping[str, str]) -> Json:
    common = {
        ".": {},
        "f:image": {},
        "f:imagePullPolicy": {},
        "f:name": {},
        "f:terminationMessagePath": {},
        "f:terminationMessagePolicy": {},
    }
    trainer = {
        **common,
        "f:args": {},
        "f:command": {},
        "f:env": {".": {}, **{f'k:{{"name":"{key}"}}': {".": {}, "f:name": {}, "f:value": {}} for key in env}},
        "f:ports": {
            ".": {},
            'k:{"containerPort":23456,"protocol":"TCP"}': {
                ".": {},
                "f:containerPort": {},
                "f:name": {},
                "f:protocol": {},
            },
        },
        "f:resources": {
            ".": {},
            "f:limits": {".": {}, "f:cpu": {}, "f:memory": {}, f"f:{GPU}": {}},
            "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}, f"f:{GPU}": {}},
        },
        "f:volumeMounts": {
            ".": {},
            **{
                f'k:{{"mountPath":"{path}"}}': {".": {}, "f:mountPath": {}, "f:name": {}}
                for path in ("/data", "/checkpoints", "/dev/shm", "/etc/training")
            },
        },
    }
    exporter = {
        **common,
        "f:env": {".": {}, 'k:{"name":"SCRAPE_INTERVAL"}': {".": {}, "f:name": {}, "f:value": {}}},
        "f:livenessProbe": {
            ".": {},
            "f:failureThreshold": {},
            "f:httpGet": {".": {}, "f:path": {}, "f:port": {}, "f:scheme": {}},
            "f:periodSeconds": {},
            "f:successThreshold": {},
            "f:timeoutSeconds": {},
        },
        "f:resources": {".": {}, "f:limits": {".": {}, "f:cpu": {}, "f:memory": {}}, "f:requests": {".": {}}},
    }
    return {
        "manager": "training-operator",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-03-01T10:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {
                "f:annotations": {".": {}, "f:prometheus.io/port": {}, "f:prometheus.io/scrape": {}},
                "f:labels": {".": {}, **{f"f:{key}": {} for key in labels}},
                "f:ownerReferences": {".": {}, 'k:{"uid":"f2f1b4f6-6d1c-4b3a-9e7b-4a0a6f6e7c11"}': {}},
            },
            "f:spec": {
                "f:containers": {'k:{"name":"pytorch"}': trainer, 'k:{"name":"metrics-exporter"}': exporter},
                "f:dnsPolicy": {},
                "f:enableServiceLinks": {},
                "f:initContainers": {
                    ".": {},
                    'k:{"name":"init-pytorch"}': {
                        **common,
                        "f:command": {},
                        "f:resources": {
                            ".": {},
                            "f:limits": {".": {}, "f:cpu": {}, "f:memory": {}},
                            "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}},
                        },
                    },
                },
                "f:restartPolicy": {},
                "f:schedulerName": {},
                "f:securityContext": {".": {}, "f:fsGroup": {}, "f:runAsNonRoot": {}, "f:runAsUser": {}},
                "f:serviceAccount": {},
                "f:serviceAccountName": {},
                "f:terminationGracePeriodSeconds": {},
                "f:volumes": {
                    ".": {},
                    'k:{"name":"checkpoints"}': {".": {}, "f:name": {}, "f:nfs": {"f:path": {}, "f:server": {}}},
                    'k:{"name":"config"}': {".": {}, "f:configMap": {"f:defaultMode": {}}, "f:name": {}},
                    'k:{"name":"dataset"}': {".": {}, "f:name": {}, "f:nfs": {"f:path": {}, "f:server": {}}},
                    'k:{"name":"shm"}': {".": {}, "f:emptyDir": {"f:medium": {}, "f:sizeLimit": {}}, "f:name": {}},
                },
            },
        },
    }
