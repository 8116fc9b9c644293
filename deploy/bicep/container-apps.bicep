// SPDX-License-Identifier: Apache-2.0
// Azure Container Apps: an app with the proxy as its sidecar, and the monitor. After main.bicep, whose outputs it takes.
//
//   az deployment group create -g my-group -f deploy/bicep/container-apps.bicep -p environmentId=… image=… appImage=… \
//     namespace=contoso.servicebus.windows.net appIdentity=… appClientId=… monitorIdentity=… monitorClientId=…

param location string = resourceGroup().location

@description('The id of the Container Apps environment.')
param environmentId string

@description('The image of Overdue.')
param image string

@description('The image of the app. It finds Service Bus at Endpoint=sb://127.0.0.1;…;UseDevelopmentEmulator=true')
param appImage string

@description('contoso.servicebus.windows.net')
param namespace string

param appIdentity string
param appClientId string
param monitorIdentity string
param monitorClientId string

// Here is no native sidecar and no hook: app and sidecar get SIGTERM at once. The sidecar stays until the app has closed its
// connections, at most for 20 s of the 30 s that both have.
resource app 'Microsoft.App/containerApps@2024-03-01' = {
  name: 'app'
  location: location
  identity: { type: 'UserAssigned', userAssignedIdentities: { '${appIdentity}': {} } }
  properties: {
    environmentId: environmentId
    configuration: { activeRevisionsMode: 'Single' }
    template: {
      terminationGracePeriodSeconds: 30
      scale: { minReplicas: 1, maxReplicas: 10 }
      containers: [
        {
          name: 'overdue'
          image: image
          args: ['proxy']
          env: [
            { name: 'OVERDUE_NAMESPACE', value: namespace }
            { name: 'AZURE_CLIENT_ID', value: appClientId }
            { name: 'OVERDUE_MAX_SIGTERM_DELAY', value: '20s' }
            { name: 'OVERDUE_SHUTDOWN_TIMEOUT', value: '8s' }
            { name: 'OVERDUE_LISTEN_PROBES', value: ':9096' }
          ]
          resources: { cpu: json('0.25'), memory: '0.5Gi' }
          probes: [
            { type: 'Startup', httpGet: { path: '/startupz', port: 9096 }, periodSeconds: 2, failureThreshold: 10 }
            { type: 'Liveness', httpGet: { path: '/livez', port: 9096 } }
          ]
        }
        {
          name: 'app'
          image: appImage
          env: [
            {
              name: 'SERVICEBUS_CONNECTION_STRING'
              value: 'Endpoint=sb://127.0.0.1;SharedAccessKeyName=any;SharedAccessKey=any;UseDevelopmentEmulator=true'
            }
          ]
          resources: { cpu: json('0.25'), memory: '0.5Gi' }
        }
      ]
    }
  }
}

resource monitor 'Microsoft.App/containerApps@2024-03-01' = {
  name: 'overdue-monitor'
  location: location
  identity: { type: 'UserAssigned', userAssignedIdentities: { '${monitorIdentity}': {} } }
  properties: {
    environmentId: environmentId
    configuration: { activeRevisionsMode: 'Single' }
    template: {
      terminationGracePeriodSeconds: 40 // more than shutdownTimeout, 25 s
      scale: { minReplicas: 2, maxReplicas: 2 } // never 0: deadlines come while nobody calls
      containers: [
        {
          name: 'overdue'
          image: image
          args: ['monitor']
          env: [
            { name: 'OVERDUE_NAMESPACE', value: namespace }
            { name: 'AZURE_CLIENT_ID', value: monitorClientId }
            { name: 'OVERDUE_LISTEN_PROBES', value: ':9096' }
          ]
          resources: { cpu: json('0.25'), memory: '0.5Gi' }
          probes: [
            { type: 'Startup', httpGet: { path: '/startupz', port: 9096 }, periodSeconds: 2, failureThreshold: 10 }
            { type: 'Liveness', httpGet: { path: '/livez', port: 9096 } }
            { type: 'Readiness', httpGet: { path: '/readyz', port: 9096 } }
          ]
        }
      ]
    }
  }
}
